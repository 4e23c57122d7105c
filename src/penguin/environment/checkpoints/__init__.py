"""Checkpoints of a workspace: what its files were before a task changed them, kept by content outside of it.

What is covered: every regular file, symbolic link and directory below the workspace, with contents and permission
bits, whatever its name is made of. What is not: ``.git`` itself (undo moves no branch and no index), owners, times
and extended attributes, devices, sockets and fifos, and what :class:`~.limits.Limits` leaves out; a manifest names
the places it does not cover, and nothing there is ever touched.
"""
