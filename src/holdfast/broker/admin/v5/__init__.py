"""What tools for EMQX ask for, at the paths and in the words of its REST interface of version 5."""
