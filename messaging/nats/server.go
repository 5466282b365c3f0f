package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/oncebox/oncebox/messaging/nats/internal/session"
)

// errTooOld means that the server lacks what this package needs.
var errTooOld = errors.New("the server is too old")

// oldestMinor is the minor version 2.x from which on a consumer can be reset.
const oldestMinor = 14

// checkServer returns an error if the server cannot do what this package needs.
func (b *Broker) checkServer(ctx context.Context) error {
	version := b.session.Conn.ConnectedServerVersion()
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	if n, err := strconv.Atoi(minor); major == "2" && err == nil && n < oldestMinor {
		return fmt.Errorf("%w: %s has version %s, and 2.%d is needed, where a consumer can be reset", errTooOld, redacted(b.cfg.URL), version, oldestMinor)
	}
	err := b.session.Ask(ctx, "", func(ctx context.Context) error {
		_, err := b.session.JS.AccountInfo(ctx)
		return err
	})
	if errors.Is(err, session.ErrDenied) {
		return nil // the user may not ask; what is wrong shows when streams are used
	}
	return err
}
