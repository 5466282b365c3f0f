package messagingtest

import "github.com/oncebox/oncebox/messaging"

// testCase is one promise of an adapter. With typed it is checked for one type of subscription, kind.
type testCase struct {
	promise string
	run     func(*session)
	typed   bool
	kind    messaging.SubscriptionType
}

func (c testCase) name() string {
	if c.typed {
		return c.kind.String() + " " + c.promise
	}
	return c.promise
}

// cases returns the cases that apply to this adapter.
func (h Harness) cases() []testCase {
	cases := []testCase{
		{promise: "envelope survives", run: testEnvelope},
		{promise: "envelopes survive side by side", run: testEnvelopes},
		{promise: "large envelope survives", run: testLargeEnvelope},
		{promise: "number that no column takes", run: testLargestNumber},
		{promise: "nobody shares memory", run: testIsolation},
		{promise: "nothing to publish", run: testPublishNothing},
		{promise: "context is done", run: testPublishCancelled},
		{promise: "concurrent calls", run: testConcurrentPublish},
		{promise: "resend after a deadline", run: testResendAfterDeadline},
		{promise: "bad subscription", run: testBadSubscription},
		{promise: "type that is not there", run: testMissingType},
		{promise: "topics of any name", run: testNames},
		{promise: "topic in use", run: testUse},
		{promise: "messages that wait", run: testWaiting},
		{promise: "late subscription", run: testLateSubscription},
		{promise: "two subscriptions", run: testTwoSubscriptions},
		{promise: "receive ends with its context", run: testReceiveContext},
		{promise: "receive ends with close", run: testReceiveClose},
		{promise: "message of another receiver", run: testForeignMessage},
		{promise: "broker closes", run: testBrokerClose},
		{promise: "broker closes while used", run: testBrokerCloseWhileUsed},
		{promise: "closed by many at once", run: testConcurrentClose},
	}
	if h.MaxMessageBytes > 0 {
		cases = append(cases,
			testCase{promise: "refused message", run: testRefused},
			testCase{promise: "refused message without key", run: testRefusedWithoutKey},
			testCase{promise: "resend after a refusal", run: testResendAfterRefusal})
	}
	if h.Forgets {
		cases = append(cases, testCase{promise: "message for nobody", run: testUnroutable})
	}
	if h.Declares || h.Forgets {
		cases = append(cases, testCase{promise: "declared ahead", run: testDeclared})
	}
	if h.Owns {
		cases = append(cases, testCase{promise: "another service", run: testAnotherService})
	}
	if h.Owns && h.Declares {
		cases = append(cases, testCase{promise: "refused declaration", run: testRefusedDeclaration})
	}
	for _, kind := range h.Types {
		typed := map[string]func(*session){
			"unsettled comes again": testUnsettled,
			"crash before ack":      testCrash,
			"takeover":              testTakeover,
			"redeliver":             testRedeliver,
			"pause":                 testPause,
		}
		if h.Cut != nil {
			typed["lost connection"] = testLostConnection
		}
		if kind != messaging.Shared {
			typed["order per key"] = testOrder
			typed["order of 1,000 keys"] = testThousandKeys
			typed["order with two consumers"] = testOrderTwoConsumers
			typed["redelivered before later ones"] = testRedeliverOrder
		}
		for promise, run := range typed {
			cases = append(cases, testCase{promise: promise, run: run, typed: true, kind: kind})
		}
	}
	return cases
}
