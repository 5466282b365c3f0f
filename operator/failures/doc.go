// Package failures groups what fails by its cause: messages and events that are tried again, and dead letters. An outage that stops 400 ordering keys is
// one group. An operator acts on the group, leaves a note on it, or archives it.
//
//	groups, err := box.Failures().List(ctx)
//	for _, g := range groups {
//		fmt.Println(g.Consumer, g.Failing.Count, g.Dead.Count, g.Cause, g.Last(), g.Note)
//	}
//	err = box.Failures().Archive(ctx, groups[0].Fingerprint, operator.By{Actor: "ann", Reason: "known, mended with release 7"})
//
// # Guarantees
//
// Each message that failed, and each dead letter, is stored with the fingerprint of its error: the consumer or the topic, the type, and the text of the
// error without numbers, ids, addresses and quotations. It does not depend on the process, nor on the version of the program.
//
// A failure writes nothing but its own row. What operators say is stored in a table of its own, under the fingerprint. It outlives the failures: the note
// is there when the cause comes back.
//
// A group that is archived comes back with the first failure after the moment of the archiving.
//
// A list reads at most [Most] fingerprints of each table, and at most [Counted] rows, however many there are.
//
// Read first: groups.go:Groups.List, then group.go:Group.
package failures
