package dead_test

import (
	"testing"

	"github.com/oncebox/oncebox/internal/outboxtest"
	"github.com/oncebox/oncebox/outbox/dead"
)

func TestStatementsOfRows(t *testing.T) {
	outboxtest.Statements(t, map[string]string{
		"list dead letters": dead.ListDead, "show a dead letter": dead.ShowDead, "behind a dead letter": dead.HeldBehind, "replay": dead.ReplayDead,
	})
}
