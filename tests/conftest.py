"""What all tests share."""

import signal

# Started in the background of a shell, this process and its children ignore SIGINT; the tests
# that interrupt a run need it as a terminal would leave it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
