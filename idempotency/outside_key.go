package idempotency

import (
	"context"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	"github.com/oncebox/oncebox/internal/calls"
)

type outsideKey struct{}

// NewContext returns the context for one run of work that has a key, so that [CallKey] can make keys for its calls to other services. Each run
// needs a context of its own, in which the calls are counted from the start. base must be the same in all runs of this work, and different for
// other work: for a request it is [Key.Outside], and a job may have an id.
//
// Handlers under httpmw.Idempotency, and functions in [Claim.Run] and [Do], have such a context.
func NewContext(ctx context.Context, base string) context.Context {
	return calls.Begin(context.WithValue(ctx, outsideKey{}, base))
}

// FromContext returns the base of [NewContext], "" if there is none.
func FromContext(ctx context.Context) string {
	base, _ := ctx.Value(outsideKey{}).(string)
	return base
}

// Outside returns an identifier of the key for other services: it never changes, and discloses nothing of the scope. It has 32 letters and digits.
// Use it if the request is compared before the work is run, as a [Claim] does while its row is there; otherwise use [Key.OutsideOf].
func (k Key) Outside() string { return derive("oncebox.idempotency.outside.1", string(k.hash[:])) }

// OutsideOf is Outside for one request with the key. A key that was freed by a rollback, or has expired, may come back with another request, which
// must not look like the first one to the other side.
func (k Key) OutsideOf(fp Fingerprint) string {
	return derive("oncebox.idempotency.outside.2", string(k.hash[:]), string(fp.Sum[:]))
}

// CallKey returns a key of 32 letters and digits for a call to another service. It is the same whenever the work with this base is run again, and
// differs for each step, each name, such as method and URL, and each further call with the same name in a run. base is the result of [FromContext],
// or of inbox.Key in the handler of a message.
//
// Call it once for each call to the other side, even if that takes several attempts. Calls with the same name at the same time may get each other's
// keys in another run: give them different names.
//
// The error means that base is empty, or that the context is not that of a run.
func CallKey(ctx context.Context, base string, name ...string) (string, error) {
	if base == "" {
		return "", errors.New("idempotency: CallKey: the base is empty")
	}
	step, nth, ok := calls.Next(ctx, base+"\x00"+strings.Join(name, "\x00"))
	if !ok {
		return "", errors.New("idempotency: CallKey was called outside of a handler: pass the context that it got, or one of NewContext")
	}
	return derive(append([]string{"oncebox.idempotency.call.1", base, step, strconv.Itoa(nth)}, name...)...), nil
}

// derive must never change: other services recognize earlier calls by its result.
func derive(parts ...string) string {
	sum := hashOf(parts...)
	return hex.EncodeToString(sum[:16])
}
