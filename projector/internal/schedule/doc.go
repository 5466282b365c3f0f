// Package schedule decides whose turn it is: how many rows each lane gives ([Pace]), which rows may pass rows that stay ([Search], [HeldSearch]),
// which topics and tenants are left alone ([Topics], [Silence], [Tenants]), which tenants take turns ([Backlog]), and when held rows are looked at
// ([DueTime]). Its functions take values and return values: the package sends no statement and publishes nothing.
//
// Topics and Tenants are shared by the workers of a relay and have a lock. Everything else belongs to one worker.
//
// Read first: class.go: [Classify], silence.go: [Silence.Report], then search.go: [Choose].
package schedule
