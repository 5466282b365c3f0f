package oncetest

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/internal/steps"
)

// tracer sees each statement of a process before it is sent. A process that dies there has lost its connections, so the statement fails.
type tracer struct{ process *process }

// firstKey is for a function that is called at each statement of a request.
type firstKey struct{}

// TraceQueryStart is called before a statement is sent.
func (t tracer) TraceQueryStart(ctx context.Context, c *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	if first, ok := ctx.Value(firstKey{}).(func()); ok {
		first()
	}
	if steps.IsStoring(ctx) {
		t.process.reach(AfterCall)
		storing(c, true)
	}
	return ctx
}

// TraceQueryEnd is called after the answer to a statement was read.
func (tracer) TraceQueryEnd(ctx context.Context, c *pgx.Conn, _ pgx.TraceQueryEndData) {
	if steps.IsStoring(ctx) {
		storing(c, false)
	}
}

// storing records whether a connection stores the result of a step.
func storing(c *pgx.Conn, is bool) {
	if w, ok := c.PgConn().Conn().(*wire); ok {
		w.storing.Store(is)
	}
}
