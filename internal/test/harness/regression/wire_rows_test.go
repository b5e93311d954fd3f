// SPDX-License-Identifier: MPL-2.0

package regression_test

// uncatalogued is the last commit before the failure catalogue was gone through row by
// row, and before stories were drawn and calls on the wire were struck.
const uncatalogued = "b3f0a5d"

func connectionRows() []row {
	talos := func(name string) test { return test{"adapter/talosapi", name} }

	return []row{
		{
			area: areaConnection, seen: uncatalogued, test: engineTest("TestCallThatIsUnderWayAtACancelEndsUnderTheLease"),
			symptom:  "A machine configuration took effect a tenth of a second after a cancelled run had given its lease back.",
			wrong:    "A cancel cut off calls that were under way, and a node carries out what has arrived.",
			scenario: "drawn stories, seed 50000; 3+2, Kubernetes 1.34.2 to 1.35.2, cancelled 0.7 s into a call",
		},
		{
			area: areaConnection, seen: uncatalogued, test: test{"test/harness/wire", "TestCrashAnywhereOnTheWire"},
			symptom:  "The annotations said in-progress for ever, of a cluster at its target.",
			wrong:    "The lease was given back before the last word stood; a process that died in between left nobody who would say it.",
			scenario: "stories over the wire, seed 1002",
		},
		{
			area: areaConnection, seen: uncatalogued, test: engineTest("TestNodeIsUnhealthyAlsoWhereALookAtItIsCutOff"),
			symptom:  "A node that had been on its new boot for half an hour was said not to have come back, in every third apply.",
			wrong:    "A look that the end of the time had cut off overwrote what was known of the node.",
			scenario: "a real apply; a worker that is never Ready, node_timeout 12m",
		},
		{
			area: areaConnection, seen: uncatalogued, test: talos("TestCatalogue21SequenceLocked"),
			symptom:  "A run waited a quarter of an hour for the end of a legacy upgrade that never began, or took it for done.",
			wrong:    "An upgrade that another sequence keeps from starting is accepted and has no event of its own.",
			scenario: "row 21 of the failure catalogue; the node says so in an event without an actor, or says nothing",
		},
		{
			area: areaConnection, seen: uncatalogued, test: talos("TestCatalogue43KeepaliveIsNotTooAggressive"),
			symptom:  "A look at a node failed because the node had closed the connection just then.",
			wrong:    "A question was not asked again on the endpoint whose connection had ended under it.",
			scenario: "row 43; GOAWAY behind the request",
		},
		{
			area: areaConnection, seen: uncatalogued, test: talos("TestCatalogue28ClockSkew"),
			symptom:  "A node that had just booted with a wrong clock ended the run as if the credentials had expired.",
			wrong:    "Nobody remembered that the very same credentials had been accepted before, and no message spoke of clocks.",
			scenario: "row 28; certificates that are out of date by one clock only",
		},
		{
			area: areaConnection, seen: uncatalogued, test: talos("TestCatalogue06SignatureDenied"),
			symptom:  "A pull that the node will never do was tried again and again.",
			wrong:    "The refusal of an image without signature has the code of a registry that is down.",
			scenario: "row 6; image verification denies the installer",
		},
		{
			area: areaConnection, seen: uncatalogued, test: talos("TestCatalogue40DiskFull"),
			symptom:  "A full disk was waited for, and the message did not name it.",
			wrong:    "It has the code of a registry that is down too.",
			scenario: "row 40; no space left on device in the middle of a pull",
		},
		{
			area: areaConnection, seen: uncatalogued, test: test{"adapter/kubeapi", "TestRefusalOfWhatWasAllowedBeforeMayHeal"},
			symptom:  "A run ended for want of a permission that it had, when the API server of a control plane had just been replaced.",
			wrong:    "An API server that starts serves before it has read who may do what, and its refusal was final.",
			scenario: "forbidden behind a list that was answered before",
		},
		{
			area: areaConnection, seen: uncatalogued, test: test{"test/harness/story", "TestStories"},
			symptom:  "A run that could not reach anything said what it had seen, and not what to do.",
			wrong:    "The first look had an error of its own without a remedy.",
			scenario: "drawn stories; a run that is cut off from its first call on",
		},
	}
}
