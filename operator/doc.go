// Package operator has the words of an operator's decision: who decides what and why, and which dead letters are meant. Outbox, inbox,
// idempotency keys, the command line and the console share them.
//
//	by := operator.By{Actor: "ann@example.com", Reason: "schema order-7 is registered"}
//	n, err := store.Dead().ReplayAll(ctx, operator.DeadFilter{Topic: "order", Error: "no schema"}, by, nil)
//
// Read first: dead_filter.go:DeadFilter, then by.go:By.
package operator
