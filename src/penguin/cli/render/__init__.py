"""Messages to lines for people; knows neither files nor sessions.

::

    look        colour, width and characters of the place the lines go to
    text        what may not reach a terminal as it stands; widths and cutting
    arguments   the one line that says what a tool call is about
    cards       tool calls with their live output, in call order
    transcript  the whole stream, message by message
    usage       the line at the end
"""
