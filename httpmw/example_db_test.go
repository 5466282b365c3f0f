package httpmw_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgtest"
)

// exampleDB opens a database with this module's tables and one more.
func exampleDB(table string) (db *bun.DB, done func()) {
	tb := &exampleTB{}
	opened := pgtest.Migrated(tb, pgtest.Outbox, pgtest.Idempotency)
	if _, err := opened.Exec(table); err != nil {
		panic(err)
	}
	return opened.DB, tb.done
}

// exampleTB is as much of a testing.TB as pgtest needs: examples have none.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (*exampleTB) Helper()                           {}
func (*exampleTB) Context() context.Context          { return context.Background() }
func (*exampleTB) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (*exampleTB) FailNow()                          { panic("failed") }
func (*exampleTB) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (tb *exampleTB) Cleanup(fn func())              { tb.cleanups = append(tb.cleanups, fn) }

func (tb *exampleTB) done() {
	for _, fn := range slices.Backward(tb.cleanups) {
		fn()
	}
}
