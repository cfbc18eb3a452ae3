"""What people look at: tables in the terminal, and files for the tools they use."""
