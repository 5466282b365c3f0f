// Package policy documents, for the clients of a service, the rules and guarantees of its idempotency keys as they are configured: as pages for
// people and as a fragment of OpenAPI. [Handler] is mounted where the types of problems of package httpmw lead to.
//
// Read first: handler.go:Handler, then policy.go:policy.rules.
package policy
