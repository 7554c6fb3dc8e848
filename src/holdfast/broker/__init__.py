"""The server.

     bytes        batches          records          deliveries         bytes
     ------> ingress --> route --> store --> dispatch --> egress ------>

- `ingress`: sockets, control packets, who is taken in, how connections end.
- `route`: which attached queues get a message, and which retained messages a new subscription gets.
- `store`: control records and their view, what waits for the disk, retention, recovery.
- `dispatch`: sessions and their queues, groups, Wills, what is lost and why, the entrance.
- `access`: beside them: who may connect, and what each may do.
- `admin`: above them: HTTP, the control socket, metrics, `$SYS`, the read interface.

Messages are moved by the kernel; egress is all kernel (`Outboxes`). Read `assemble` first, which
builds and joins the parts, then `turn`, which is the path of a message. `serve` is the process.
"""
