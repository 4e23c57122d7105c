"""The client side of the Model Context Protocol: tools of other processes become tools of this environment (N20-N22).

Two halves. ``config``, ``naming``, ``schemas``, ``report``, ``tool``, ``server`` and ``servers`` are light. The others
import the official SDK, which costs more than a second of CPU, and are imported in a thread, by the first server that
is started. An environment without MCP servers loads neither.
"""
