package httpmwtest

// testCase is one rule that the suite checks.
type testCase struct {
	promise string
	run     func(*session)
	// needs reports whether the target describes enough for this rule. nil: every target does.
	needs func(*Target) bool
}

func cases() []testCase {
	slow := func(t *Target) bool { return t.Slow != nil }
	answers := func(free bool) func(t *Target) bool {
		return func(t *Target) bool {
			for status := range t.Answers {
				if frees(status) == free {
					return true
				}
			}
			return false
		}
	}
	rich := func(t *Target) bool { return t.Rich != nil }
	return []testCase{
		{promise: "a retry gets the first answer", run: testRetry},
		{promise: "replays say so and nothing else does", run: testReplayedHeader},
		{promise: "headers that describe the answer are replayed", run: testStoredHeaders, needs: rich},
		{promise: "headers that a route names are replayed", run: testExtraHeaders, needs: func(t *Target) bool { return t.Extra != nil }},
		{promise: "problems are JSON for clients that take JSON alone", run: testPlainJSON},
		{promise: "each answer has its own compression", run: testCompressed, needs: func(t *Target) bool { return t.Compressed != nil }},
		{promise: "headers of the moment are not replayed", run: testUnstoredHeaders, needs: rich},

		{promise: "raw and quoted are one key", run: testQuoted},
		{promise: "keys of every kind are taken", run: testKeyKinds},
		{promise: "the case of a key counts", run: testKeyCase},
		{promise: "malformed keys are refused", run: testMalformedKeys},
		{promise: "a required key is missing", run: testMissingKey, needs: func(t *Target) bool { return t.Required != nil }},
		{promise: "an optional key is missing", run: testOptionalKey, needs: func(t *Target) bool { return t.Optional != nil }},
		{promise: "keys in quotes only", run: testStrict, needs: func(t *Target) bool { return t.Strict != nil }},
		{promise: "keys have a least length", run: testMinKey, needs: func(t *Target) bool { return t.LongKeys != nil }},
		{promise: "methods that are keyed", run: testKeyed, needs: func(t *Target) bool { return len(t.Keyed) > 0 }},
		{promise: "other methods are untouched", run: testUntouched, needs: func(t *Target) bool { return len(t.Untouched) > 0 }},

		{promise: "callers never meet", run: testCallers, needs: func(t *Target) bool { return len(t.Callers) > 1 }},
		{promise: "another token of the same caller", run: testRefreshed, needs: func(t *Target) bool { return t.Refreshed != nil }},
		{promise: "a key needs a principal", run: testNobody, needs: func(t *Target) bool { return t.Nobody != nil }},
		{promise: "a key needs a tenant", run: testNoTenant, needs: func(t *Target) bool { return t.NoTenant != nil }},
		{promise: "replays are authorised", run: testStranger, needs: func(t *Target) bool { return t.Stranger != nil }},
		{promise: "the same key elsewhere is another", run: testElsewhere, needs: func(t *Target) bool { return len(t.Elsewhere) > 0 }},

		{promise: "another content is refused", run: testAnotherContent},
		{promise: "other words for the same content", run: testRespelled},
		{promise: "another version is another content", run: testVersion, needs: func(t *Target) bool { return t.Versioned != nil }},
		{promise: "a precondition that is added", run: testPrecondition, needs: func(t *Target) bool { return t.Conditional != nil }},
		{promise: "what is excluded makes no difference", run: testExcluded, needs: func(t *Target) bool { return t.Excludes != nil }},

		{promise: "many clients at once", run: testManyClients},
		{promise: "a key in flight is a conflict", run: testInFlight, needs: slow},
		{promise: "another content in flight", run: testAnotherInFlight, needs: slow},
		{promise: "a client that goes away", run: testClientGone, needs: slow},
		{promise: "others wait for the answer", run: testWaits, needs: func(t *Target) bool { return t.Waits != nil }},
		{promise: "others wait no longer than they may", run: testImpatient, needs: func(t *Target) bool { return t.Impatient != nil }},
		{promise: "a lost lease is taken over", run: testTakenOver, needs: func(t *Target) bool { return t.TakenOver != nil }},
		{promise: "another content under a lease", run: testLeased, needs: func(t *Target) bool { return t.Leased != nil }},
		{promise: "a step without a known outcome", run: testUnknown, needs: func(t *Target) bool { return t.Unknown != nil }},

		{promise: "a step whose outcome is found out", run: testRecovers, needs: func(t *Target) bool { return t.Recovers != nil }},
		{
			promise: "a step that an operator resolves", run: testResolved,
			needs: func(t *Target) bool { return t.Unknown != nil && t.Resolve != nil },
		},

		{promise: "answers that stay the same are kept", run: testKept, needs: answers(false)},
		{promise: "answers that may change free the key", run: testFreed, needs: answers(true)},
		{promise: "a route keeps what it wants to", run: testKeeps, needs: func(t *Target) bool { return t.Keeps != nil }},
		{promise: "refused work is undone", run: testRefusedWork, needs: func(t *Target) bool { return len(t.Answers) > 0 && t.counts() }},
		{promise: "an answer too large to keep", run: testLarge, needs: func(t *Target) bool { return t.Large != nil }},
		{promise: "an answer that cannot be held", run: testNotHeld, needs: func(t *Target) bool { return len(t.NotHeld) > 0 }},
		{promise: "a body too large", run: testMaxBody, needs: func(t *Target) bool { return t.MaxBody > 0 }},

		{promise: "a body that ends too early", run: testTruncated},

		{promise: "a panic frees the key", run: testPanics, needs: func(t *Target) bool { return t.Panics != nil }},
		{promise: "work that cannot be committed", run: testAborts, needs: func(t *Target) bool { return t.Aborts != nil }},
		{promise: "a conflict is run again", run: testConflicts, needs: func(t *Target) bool { return t.Conflicts != nil }},
		{promise: "a conflict is answered where it is to be", run: testRunsOnce, needs: func(t *Target) bool { return t.RunsOnce != nil }},
		{promise: "without the store nothing is executed", run: testDown, needs: func(t *Target) bool { return t.Down != nil }},
		{promise: "an expired key is a new one", run: testExpires, needs: func(t *Target) bool { return t.Expires != nil }},
		{promise: "problems are pages", run: testPublished, needs: func(t *Target) bool { return t.Published }},
	}
}
