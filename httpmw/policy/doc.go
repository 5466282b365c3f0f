// Package policy tells the clients of a service what its idempotency keys ask of them and promise to them, as configured: as pages for
// people and as a fragment of OpenAPI. [Handler] is mounted where the types of problems of package httpmw lead to.
//
// Read first: handler.go:Handler, then policy.go:policy.rules.
package policy
