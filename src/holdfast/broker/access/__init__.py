"""Who may connect, and what each may publish, subscribe to and receive.

- `credential`: the values: a credential, a rule; how control records hold them.
- `filters`: what one topic filter has in common with another.
- `rules`: rules as grants for the kernel, and which subscription a grant allows.
- `passwords`: checking passwords without holding up the loop.
- `login_failures`: who has failed to log in, and what follows.
- `book`: credentials and rules as the log has them.
- `access`: the decision about a login, and everything that follows from an identity.
- `users`: changes, for HTTP and the command line.
- `rates`: how many of something there may be in a second.
"""
