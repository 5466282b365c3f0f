// Package progress decides how far a lane has come: from which number a fetch may begin ([Watermark], [Shortcut]), what
// happens to each row of a batch ([Batch]), and what is written down about the rows that the broker has confirmed
// ([Out]). It sends no statement and publishes nothing.
//
// No event is lost and the order is kept only if these decisions are right. model_test.go checks them against a model of the database, with
// crashes at each step.
//
// Read first: watermark.go: [Watermark], batch.go: [Batch.Sort] and [Batch.Judge], then out.go: [Batch.Out].
package progress
