package status

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
)

// Unused returns a note if the database has seen no relay, no consumer and no event. An operator who has connected to
// the wrong database would otherwise read that all is well. "" if something is known.
func Unused(ctx context.Context, s *cli.Session) (string, error) {
	relays, err := s.Outbox().State().Projectors(ctx)
	if err != nil || len(relays) > 0 {
		return "", err
	}
	consumers, err := s.Inbox().State().Consumers(ctx)
	if err != nil || len(consumers) > 0 {
		return "", err
	}
	traffic, err := s.Outbox().State().Traffic(ctx)
	if err != nil || traffic.Recorded > 0 {
		return "", err
	}
	address, err := pgx.ParseConfig(s.Cfg.DatabaseURL)
	if err != nil {
		return "", fmt.Errorf("read ONCEBOX_DATABASE_URL: %w", err)
	}
	return fmt.Sprintf("The database %q at %s:%d has no relay, no consumer and no event. It may be the wrong database: compare ONCEBOX_DATABASE_URL and "+
		"ONCEBOX_SCHEMA with those of the service. To check the broker too, run with the variables of the service: %s\n",
		address.Database, address.Host, address.Port, s.Typed("doctor")), nil
}
