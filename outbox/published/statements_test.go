package published_test

import (
	"testing"

	"github.com/oncebox/oncebox/internal/outboxtest"
	"github.com/oncebox/oncebox/outbox/published"
)

func TestStatementsOfRows(t *testing.T) {
	outboxtest.Statements(t, map[string]string{"read what was sent": published.ReadSent})
}
