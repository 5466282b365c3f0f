// Package consumers has what operators do with the consumers of a database: pause a consumer, resume it, and forget a consumer that no process runs
// any more. All processes follow it, and the audit has an entry for each action.
//
//	by := operator.By{Actor: "ann", Reason: "smtp is down"}
//	err := box.Consumers().Pause(ctx, "mailer", 2*time.Hour, by)
//
// A pause is a row of the table inbox_pause. Each process reads the rows once a second and before its first message, so a pause also holds for
// processes that start later. While a consumer is paused:
//
//   - No handler of the consumer starts: neither for messages of the broker, nor for parked or stored messages, nor for a message that an operator
//     wants to retry. Handlers that run end as usual, also under a lease, and a batch that runs is committed.
//   - Messages that a process has received already stay in the process, in their order, without an acknowledgement and without a counted try.
//     If the process ends, the broker delivers them again.
//   - Messages that come later wait at the broker. Without a broker they are stored for the consumer.
//   - The order of each key is kept, because all messages of a consumer wait alike. Other consumers go on.
//   - Failed messages are not given up because of the time that passes: a message is given up only after a try.
//   - The subscription, the partitions and the heartbeat of the consumer stay. Readiness and liveness stay good.
//
// A handler of inbox.Inbox.Wrap that the program calls by itself runs all the same; only its parked messages wait. The rebuild of a read model
// goes on, too, because an operator has begun it.
//
// Read first: consumers.go:Consumers.Pause.
package consumers
