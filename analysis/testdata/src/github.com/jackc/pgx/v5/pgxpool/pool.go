// Package pgxpool stands for the real one.
package pgxpool

import "context"

type Pool struct{}

func (*Pool) Exec(ctx context.Context, query string) error { return nil }
