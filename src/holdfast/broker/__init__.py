"""The server.

     bytes        batches          records          deliveries         bytes
     ------> ingress --> route --> store --> delivery --> egress ------>

- `sockets`: listeners, and the layers below a connection of any protocol.
- `mqtt`: MQTT as it is served: who is taken in, control packets, sessions, Wills, permissions, how
  connections end.
- `delivery`: queues of every kind, groups, what is lost and why, the entrance.
- `store`: control records and their view, what waits for the disk, retention, recovery.
- `access`: beside them: who may connect, and what each may do.
- `state` and `commands`: what all of them hand out, and what can be done from outside.
- `observe` and `admin`: above those: metrics, forecasts, `$SYS`, HTTP, the control socket, the read
  interface.

Messages are moved by the kernel; egress is all kernel (`Outboxes`). Read `assemble` first, which
builds and joins the parts, then `turn`, which is the path of a message. `serve` is the process.
"""
