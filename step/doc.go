// Package step makes calls to other services in a handler that may run several times, and stores their results, so that a later run skips the calls
// that are done. [Call] works in each handler under a lease: of a request (httpmw.IdempotencyConfig.Lease, idempotency.Claim.Run) and of a message
// (inbox.Leased, inbox.Inbox.WrapLeased). So one use case serves both. [AtMostOnce] is for another side that knows no keys, and for a call that must
// rather be left out than made twice. Other kinds of steps are in package idempotency (StepOnce, StepTx) and in package inbox (StepInUnit).
//
// # Guarantees
//
// A call whose result was stored is not made again. If the process dies between the call and the storing of its result, the call is made again with
// the same key. A call of AtMostOnce is not made again even then. Results are stored in the table of the package whose lease it is, and removed with
// the lease's work: with the answer of the request, or when the message is settled.
//
// # Errors
//
// Each error names the step. ErrLeaseLost, of package idempotency or inbox, means that the result was not stored.
//
// Read first: call.go:Call, then at_most_once.go:AtMostOnce.
package step
