// Package operator has the types that describe an operator's decision: who decides, why, and about which dead letters. Outbox, inbox, idempotency
// keys, the command line and the console share these types.
//
//	by := operator.By{Actor: "ann@example.com", Reason: "schema order-7 is registered"}
//	n, err := store.Dead().ReplayAll(ctx, operator.DeadFilter{Topic: "order", Error: "no schema"}, by, nil)
//
// Read first: dead_filter.go:DeadFilter, then by.go:By.
package operator
