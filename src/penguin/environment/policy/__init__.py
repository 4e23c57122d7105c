"""What commands do before they run: rules that deny (N12) and rules learnt from answers (N24).

Both work on the same reading of a command line. Neither is a boundary: the sandbox is.
"""
