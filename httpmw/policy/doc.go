// Package policy documents the idempotency keys of a service for its clients: the rules and guarantees that follow from the configuration of the
// service. It writes pages for people and a fragment of OpenAPI. Mount [Handler] at the address to which the problem types of package httpmw
// point.
//
// Read first: handler.go:Handler, then policy.go:policy.rules.
package policy
