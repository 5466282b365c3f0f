// Package leaktest fails packages whose tests leave goroutines behind.
package leaktest

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/goleak"
)

// Exit ends the process with code, which [testing.M.Run] has returned. If the tests passed but left
// goroutines behind, the code is 1.
func Exit(code int, ignored ...goleak.Option) {
	if code == 0 {
		if err := find(ignored); err != nil {
			fmt.Fprintln(os.Stderr, "goroutines left behind by the tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// find waits for goroutines that are about to end, longer than goleak does, because that takes time on a busy machine.
func find(ignored []goleak.Option) (err error) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if err = goleak.Find(ignored...); err == nil {
			return nil
		}
	}
	return err
}
