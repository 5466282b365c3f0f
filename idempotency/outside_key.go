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

// NewContext returns the context for one run of work that has a key, so that what it calls outside can be given keys by
// [CallKey]. Each run needs a context of its own, in which the calls are counted from the start. base is the same in all
// runs of this work and another one for other work: that of a request is [Key.Outside], and a job may have an id.
//
// Handlers under httpmw.Idempotency, and what runs in [Claim.Run] and in [Do], have such a context.
func NewContext(ctx context.Context, base string) context.Context {
	return calls.Begin(context.WithValue(ctx, outsideKey{}, base))
}

// FromContext returns the base of [NewContext], "" if there is none.
func FromContext(ctx context.Context) string {
	base, _ := ctx.Value(outsideKey{}).(string)
	return base
}

// Outside returns what others may know of the key: the same for ever, and nothing of the scope can be found out from it.
// It has 32 letters and digits. It is for work whose request is compared before anything is run, as that of a [Claim] is while its row is
// there; otherwise take [Key.OutsideOf].
func (k Key) Outside() string { return derive("oncebox.idempotency.outside.1", string(k.hash[:])) }

// OutsideOf is Outside for one request with the key. A key that was freed by a rollback, or has expired, may come back with another
// request. The other side must not take that for the first request again.
func (k Key) OutsideOf(fp Fingerprint) string {
	return derive("oncebox.idempotency.outside.2", string(k.hash[:]), string(fp.Sum[:]))
}

// CallKey returns a key for a call to another service, of 32 letters and digits: the same whenever work with this base is
// run again, another one for each step, each name, such as method and URL, and each further call of one name in a run. base
// is that of [FromContext], or inbox.Key in the handler of a message.
//
// Call it once for what is one call to the other side, also if that takes several attempts. Calls of one name that are
// made at the same time are told apart only by luck: give them names of their own.
//
// The error means that base is empty, or that the context is not that of a run.
func CallKey(ctx context.Context, base string, name ...string) (string, error) {
	if base == "" {
		return "", errors.New("idempotency: CallKey: the base is empty")
	}
	step, nth, ok := calls.Next(ctx, base+"\x00"+strings.Join(name, "\x00"))
	if !ok {
		return "", errors.New("idempotency: CallKey: the context is not that of a handler: use NewContext for each run")
	}
	return derive(append([]string{"oncebox.idempotency.call.1", base, step, strconv.Itoa(nth)}, name...)...), nil
}

// derive must never change: other services know the calls that they have had by what it returns.
func derive(parts ...string) string {
	sum := hashOf(parts...)
	return hex.EncodeToString(sum[:16])
}
