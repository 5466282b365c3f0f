package uow_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/internal/pgtest"
)

// exampleDB gives an example a schema of its own with one table.
func exampleDB(table string) (db *bun.DB, done func()) {
	tb := &exampleTB{}
	opened := pgtest.Open(tb)
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
