"""The built-in tools, one file each; `builtin.py` lists them."""
