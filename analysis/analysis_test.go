package analysis_test

import (
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/oncebox/oncebox/analysis"
)

func TestPool(t *testing.T) { analysistest.Run(t, analysistest.TestData(), analysis.Pool, "pool") }

func TestTrack(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), analysis.Track, "domain", "track")
}
