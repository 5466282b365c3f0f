// Package keys has the commands "oncebox keys": idempotency keys without an answer, and steps whose outcome an operator finds out.
//
// Read first: keys.go:New.
package keys
