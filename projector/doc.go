// Package projector is the relay: it publishes the events of an outbox. A projector leases lanes of one or more outboxes,
// publishes their rows, and settles them: it records that they are published. (A read model is something
// else, see readmodel.Model.)
//
//	p, err := projector.New(broker, nil, store)
//	err = p.Run(ctx) // until ctx is done
//
// Any number of projectors may run. All projectors that are alive share the lanes evenly.
//
// # Guarantees
//
// At least once: a row is settled after the broker has confirmed it, never before. In order per ordering key: a lane
// has one owner, which publishes one batch of it at a time, and a row is not sent while an earlier row of its key is unconfirmed. Both
// hold through crashes, takeovers and lost answers. After these a row may be sent again, with the same id.
//
// Each kind of failure stops as little as possible:
//
//   - If the broker refuses a message, it waits, longer after each refusal. Later rows of its key wait behind it, other keys go on. After the last
//     try, or at once if the refusal is permanent, it becomes a dead letter.
//   - If a topic is in trouble, its rows wait. From time to time one of them is sent by itself, until the broker takes it. Rows of other topics go on.
//   - A tenant with a long backlog takes turns with all other tenants.
//   - If a row kills the process, the next processes find out which row it is, and it becomes a dead letter.
//   - If the broker cannot be reached, or does not confirm, this does not count as a try, and no row is written.
//
// No database transaction is open while something is being published.
//
// The stores may be in several databases, one store in each. They are relayed side by side and share only the
// publisher. A database that is away does not stop the others, and is relayed again when it is back.
//
// # Errors
//
// [Projector.Run] goes on through failures of database and broker, logs them, and pauses longer after each. It
// returns an error only at its start: the tables are missing, this build is too old for them, or no database answers
// within [Config.DatabaseWait].
//
// # Metrics
//
//   - oncebox.outbox.published: rows that the broker confirmed
//   - oncebox.outbox.refused: refusals of single rows
//   - oncebox.outbox.died: rows that were given up
//   - oncebox.outbox.unconfirmed: rows left for another try because topic or broker were in trouble
//   - oncebox.outbox.fenced: writes that were refused because the lane had been lost
//   - oncebox.outbox.publish.latency: how long the broker takes to confirm a batch
//   - oncebox.outbox.lag: from the recording of an event, or its time, to the broker's confirmation; the oldest event of each batch
//   - oncebox.outbox.inflight: events that the broker has and has not confirmed yet
//   - oncebox.outbox.attempts: tries of an event that was refused at least once, by outcome
//
// Gauges show the state of the outbox: oncebox.outbox.backlog and dead by topic and tenant, oldest_age, new, held,
// failed, max_tries, delayed, paused, tenants_paused, blocked, sent, lanes by state, partitions_missing and
// oldest_snapshot. One of all projectors reads the state every 15 seconds (see Stats of outbox/state), and only that one reports it.
//
// # How to read the code
//
// Four packages below this one can be understood without the rest. internal/leases holds the lanes, internal/schedule decides who is next,
// internal/progress decides how far a lane has come, and internal/measure has the metrics.
//
// This package is the loop around them. relay.go starts its goroutines, and worker.go has the pass. A batch is fetched (fetch.go). From there,
// sender.go takes it to its end: it is published (publish.go) and recorded (settle.go). Each other file is a part of the worker for one kind of
// trouble: searcher.go for rows that pass other rows, probe.go for topics, held.go and queue.go for refused rows, isolate.go for rows that kill,
// late.go for transactions that stay open.
//
// Read first: worker.go:worker.turn, then worker.fresh, sender.go:sender.deliver, and settle.go:settler.settle.
package projector
