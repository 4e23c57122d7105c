"""The engine: one session's loop over model, tools and the human's approval."""
