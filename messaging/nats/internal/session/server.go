package session

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrTooOld means that the server lacks what this package needs.
var ErrTooOld = errors.New("the server is too old")

// oldestMinor is the minor version 2.x from which on a consumer can be reset.
const oldestMinor = 14

// CheckServer returns an error if the server cannot do what this package needs.
func (s *Session) CheckServer(ctx context.Context) error {
	version := s.Conn.ConnectedServerVersion()
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	if n, err := strconv.Atoi(minor); major == "2" && err == nil && n < oldestMinor {
		return fmt.Errorf("%w: it has version %s, and 2.%d is needed, where a consumer can be reset", ErrTooOld, version, oldestMinor)
	}
	err := s.Ask(ctx, "", func(ctx context.Context) error {
		_, err := s.JS.AccountInfo(ctx)
		return err
	})
	if errors.Is(err, ErrDenied) && !errors.Is(err, errMute) {
		return nil // the user may not ask; what is wrong shows when streams are used
	}
	// The server with JetStream may be another one, to which this one has no link yet.
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) && (s.cfg.Domain != "" || s.Conn.ConnectedClusterName() != "") {
		return fmt.Errorf("%s reaches no server with JetStream: %s", s.Conn.ConnectedServerName(), err.Error())
	}
	return err
}
