package pgsql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/retry"
)

// patience is how often Patiently asks for a lock.
const patience = 5

// Patiently calls fn again while a table is in use: four times, after pauses of 100 ms and then twice as long each time, with jitter. fn waits
// for its lock for a moment only, because all others wait behind it. The last error is one of [InUse] if the table stayed in use.
func Patiently(ctx context.Context, fn func() error) error {
	for attempt := 1; ; attempt++ {
		err := fn()
		if !InUse(err) {
			return err
		}
		if attempt == patience {
			return fmt.Errorf("the table is in use: %w", err)
		}
		if (retry.Policy{Delay: 100 * time.Millisecond, MaxDelay: time.Second}).Wait(ctx, attempt) != nil {
			return errors.Join(err, ctx.Err())
		}
	}
}

// InUse reports whether a statement did not get a lock that others have.
func InUse(err error) bool {
	code := Code(err)
	return code == CodeLockNotAvailable || code == CodeDeadlock
}

// EachPatiently calls fn for each number below n, whatever becomes of the others, and joins the errors. It is patient with the first of them that finds
// the table in use: what is in use for so long is so for the others as well.
func EachPatiently(ctx context.Context, n int, fn func(i int) error) error {
	var errs []error
	busy := false
	for i := 0; i < n && ctx.Err() == nil; i++ {
		try := func() error { return fn(i) }
		err := try()
		if InUse(err) && !busy {
			err = Patiently(ctx, try)
			busy = InUse(err)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, ctx.Err())...)
}
