// Package projector is the relay, which publishes the events of an outbox; a read model is a readmodel.Model.
// It leases lanes of one or more outboxes, publishes their rows and settles them.
//
//	p, err := projector.New(broker, nil, store)
//	err = p.Run(ctx) // until ctx is done
//
// Any number of projectors may run; they share the lanes out evenly among those that are alive.
//
// # Guarantees
//
// At least once: a row is settled after the broker confirmed it, never before. In order per ordering key: a lane has
// one owner and one batch on its way, and what follows a row that was not confirmed is not sent. Both hold through
// crashes, takeovers and lost answers; then a row may be sent again, with the same id.
//
// What fails is told apart. A message that the broker refuses waits with backoff, and what follows it under its key
// waits behind it, while other keys go on; after the last attempt, or at once if the refusal is permanent, it is dead.
// A topic in trouble is left alone, but for one row that is sent alone from time to time until the broker takes it, and other
// topics pass it by. A tenant with a long backlog takes turns
// with all others. A row that kills the process is found out by its successors and is dead after some of them. A
// broker that cannot be reached, and a receipt that did not come, cost no attempt and write no row.
//
// No database transaction is open while something is being published.
//
// The stores may be in several databases, one of each. They are relayed side by side and have nothing in common but the
// publisher: a database that goes away stops no other, and is relayed again when it is back.
//
// # Errors
//
// [Projector.Run] goes on through failures of database and broker, logs them and backs off. It returns an error only at
// its start: the tables are missing, this build is too old for them, or the database does not answer (of several: none of them does) for
// longer than [Config.DatabaseWait] allows.
//
// # Metrics
//
//   - oncebox.outbox.published: rows that the broker confirmed
//   - oncebox.outbox.refused: refusals of single rows
//   - oncebox.outbox.died: rows that were given up
//   - oncebox.outbox.unconfirmed: rows left for another try because topic or broker were in trouble
//   - oncebox.outbox.fenced: writes that were refused because the lane had been lost
//   - oncebox.outbox.publish.latency: how long the broker takes to confirm a batch
//   - oncebox.outbox.lag: from the commit of an event, or its time, to the broker's confirmation; the oldest one of each batch
//   - oncebox.outbox.inflight: events that the broker has and has not confirmed yet
//   - oncebox.outbox.attempts: tries of an event that was refused at least once, by outcome
//
// and the state of the outbox, which one projector of all reads every 15 seconds, as Stats of outbox/state explains it: the gauges
// oncebox.outbox.backlog and dead by topic and tenant, oldest_age, new, held, failed, max_tries, delayed, blocked, sent, lanes by state,
// partitions_missing and oldest_snapshot. A projector that does not read it shows none of them.
package projector
