package delayed_test

import (
	"testing"

	"github.com/oncebox/oncebox/internal/outboxtest"
	"github.com/oncebox/oncebox/outbox/delayed"
)

func TestStatementsOfRows(t *testing.T) {
	outboxtest.Statements(t, map[string]string{"list delayed events": delayed.ListDelayed})
}
