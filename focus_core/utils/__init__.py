"""What any part may need and none of the domain: files, locks, threads, plain JSON."""
