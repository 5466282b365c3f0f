package oncetest

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/internal/steps"
)

// tracer sees each statement of a process before it is sent. A process that dies there has lost its connections, so the statement fails.
type tracer struct{ process *process }

// TraceQueryStart is called before a statement is sent.
func (t tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	if steps.IsStoring(ctx) {
		t.process.reach(AfterCall)
	}
	return ctx
}

// TraceQueryEnd does nothing.
func (tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
