// Package outlook says about things that are stuck why they wait, what becomes of them by itself, and what an operator can do.
//
// # Guarantees
//
// A kind of stuck things has the same words on all pages. "Nothing is lost" stands only where a database or a broker keeps the event or message, and
// somebody or something publishes or handles it later.
//
// Read first: outlook.go:Of.
package outlook
