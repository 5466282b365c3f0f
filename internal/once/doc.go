// Package once lets several readers of one page share what they read: the first asks the database, and the others get its answer.
//
//	ctx = once.With(ctx)
//	list, err := once.Do(ctx, once.Key{Of: box, What: "overdue"}, read)
//
// # Guarantees
//
// Without [With] each call reads. The answer lives as long as the context of With, so a context that lasts longer than a page must not be given to it. What
// was read is shared: nobody may change it.
//
// Read first: once.go:Do.
package once
