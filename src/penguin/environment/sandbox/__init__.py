"""The boundary around commands and file tools (N16, N25): what may be read and written, and bubblewrap to hold it.

``settings`` is what a person chooses, ``zones`` what follows for each path, ``command_sandbox`` the object that
commands and file tools ask. What the boundary is and is not: decisions/0009.
"""
