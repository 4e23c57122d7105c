"""The ``penguin`` command.

::

    main        where the process starts and ends: descriptors, cheap answers, exit status
    app         the table of commands; a command's module is imported when it is called
    commands    one module per command
    render      messages to lines, knowing nothing of files or sessions
    streams     standard input and output that are closed, broken or not UTF-8
"""
