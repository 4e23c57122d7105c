"""The OmniMessage protocol: pure data, no input or output."""
