"""From device to table: every part is killed again and again, and the counts still agree."""
