// Package count says how far to trust a number of messages that a broker reports. Some brokers count messages, others batches of them.
//
// # Guarantees
//
// The zero value is [Exact], and the precision of a sum is the maximum of the precisions of its parts.
//
// Read first: precision.go:Precision.
package count
