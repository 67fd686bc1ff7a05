"""Kubernetes' functions. All of these were true in upstream's evaluator (Kubernetes 1.37), too."""

import pytest

from onejob.cel import EvaluationError
from onejob.cel.functions import FunctionKey
from onejob.cel.library import FUNCTIONS
from tests.cel.asking import compile_any

TRUE = [
    # Strings.
    "'tacocat'.charAt(3) == 'o' && 'abc'.charAt(3) == ''",
    "'hello mellow'.indexOf('ello') == 1 && 'hello mellow'.indexOf('ello', 2) == 7",
    "'hello mellow'.lastIndexOf('ello') == 7 && 'hello mellow'.lastIndexOf('ello', 6) == 1",
    "''.indexOf('') == 0 && 'ab'.lastIndexOf('') == 2 && 'ab'.indexOf('z') == -1",
    "['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab' && [].join('x') == ''",
    "'ÀB'.lowerAscii() == 'Àb' && 'àb'.upperAscii() == 'àB'",
    "'hello hello'.replace('he', 'we') == 'wello wello'",
    "'hello hello'.replace('he', 'we', 1) == 'wello hello' && 'ab'.replace('', '_') == '_a_b_'",
    "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c']",
    "'abc'.split('') == ['a', 'b', 'c'] && 'a'.split(',', 0) == []",
    "'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco'",
    "'\\t  trim\\n'.trim() == 'trim'",
    "strings.quote('a\"b\\n') == '\"a\\\\\"b\\\\n\"'",
    "'%s %d %.2f %x %b %%'.format(['a', 1, 1.5, 255, 5]) == 'a 1 1.50 ff 101 %'",
    "'%s'.format([[dyn(1), dyn('a'), dyn({'k': true})]]) == '[1, \"a\", {\"k\":true}]'",
    # Regular expressions.
    "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''",
    "'123 abc 456'.findAll('[0-9]+') == ['123', '456']",
    "'123 abc 456'.findAll('[0-9]+', 1) == ['123'] && 'a'.findAll('b') == []",
    "'AB'.matches('^(?i)ab$') && !'a\\nb'.matches('^b') && 'é'.matches('^.$')",
    # Lists and sets.
    "[1, 2, 2].isSorted() && !['b', 'a'].isSorted() && [].isSorted()",
    "[1, 2].sum() == 3 && [1.5].sum() == 1.5 && [duration('1h')].sum() == duration('60m')",
    "[3, 1].min() == 1 && ['a', 'b'].max() == 'b'",
    "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(5) == -1",
    "[1, 2, 3, 4].slice(1, 3) == [2, 3]",
    "[[1], [2, 3]].flatten() == [1, 2, 3] && dyn([dyn(1), dyn([2])]).flatten(2) == [1, 2]",
    "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b']",
    "[{'n': 2}, {'n': 1}].sortBy(x, x.n) == [{'n': 1}, {'n': 2}]",
    "[1, 1, 2, 1].distinct() == [1, 2] && lists.range(3) == [0, 1, 2]",
    "[1, 2].reverse() == [2, 1] && [1].first().value() == 1 && ![].last().hasValue()",
    "sets.contains([1, 2, 3], [3, 3, 1]) && !sets.contains([1], [2])",
    "sets.equivalent([1, 2, 2], [2, 1]) && sets.intersects([1, 2], [2])",
    # Quantities.
    "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('500m').isLessThan(quantity('1'))",
    "quantity('1k') == quantity('1000') && quantity('1e3') == quantity('1k')",
    "quantity('1.5k').asInteger() == 1500 && !quantity('0.5').isInteger()",
    "quantity('50k').add(quantity('20k')) == quantity('70k') && sign(quantity('1').sub(3)) == -1",
    "quantity('500m').asApproximateFloat() == 0.5 && quantity('1').compareTo(quantity('2')) == -1",
    "isQuantity('20Mi') && !isQuantity('20Mo') && !isQuantity('') && !isQuantity('1 Gi')",
    "quantity('1n').isGreaterThan(quantity('0')) && quantity('0.1n') == quantity('1n')",
    # Addresses.
    "ip('127.0.0.1').family() == 4 && ip('::1').isLoopback() && isIP('2001:db8::1')",
    "!isIP('127.0.0.256') && !isIP('01.2.3.4') && !isIP('fe80::1%eth0') && !isIP('::ffff:1.2.3.4')",
    "ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8::ABCD')",
    "ip('0.0.0.0').isUnspecified() && ip('224.0.0.1').isLinkLocalMulticast()",
    "ip('169.254.1.1').isLinkLocalUnicast() && ip('8.8.8.8').isGlobalUnicast()",
    "!ip('255.255.255.255').isGlobalUnicast() && ip('ff02::1').isLinkLocalMulticast()",
    "cidr('10.0.0.0/8').containsIP('10.0.0.1') && !cidr('10.0.0.0/8').containsIP('11.0.0.1')",
    "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
    "!cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8')",
    "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('::/0').prefixLength() == 0",
    "cidr('10.0.0.0/8').ip() == ip('10.0.0.0') && string(cidr('::1/128')) == '::1/128'",
    "isCIDR('::/8') && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0/08')",
    # URLs.
    "url('https://user@example.com:80/a%20b?k=1&k=2#f').getHost() == 'example.com:80'",
    "url('https://[::1]:80/').getHostname() == '::1' && url('https://[::1]:80/').getPort() == '80'",
    "url('https://example.com/with space/').getEscapedPath() == '/with%20space/'",
    "url('/path?k=a&k=b').getQuery() == {'k': ['a', 'b']} && url('/x').getScheme() == ''",
    "isURL('https://a') && !isURL('a/b') && !isURL('https://a:b') && !isURL('') && !isURL('../x')",
    # Versions.
    "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
    "semver('1.0.0-alpha.2').isLessThan(semver('1.0.0-alpha.10'))",
    "semver('1.0.0-rc.1').isLessThan(semver('1.0.0')) && semver('1.0.0+a') == semver('1.0.0+b')",
    "isSemver('1.0.0') && !isSemver('v1.0') && isSemver('v1.0', true) && !isSemver('01.0.0')",
    "semver('v01.02', true) == semver('1.2.0')",
    # Formats.
    "!format.dns1123Label().validate('my-name').hasValue()",
    "format.dns1123Label().validate('My').value()[0].startsWith('a lowercase RFC 1123 label')",
    "format.named('uuid').value().validate('x').value() == ['does not match the UUID format']",
    "!format.named('nosuch').hasValue() && !format.dns1123LabelPrefix().validate('a-').hasValue()",
    "!format.qualifiedName().validate('example.com/name').hasValue()",
    "format.qualifiedName().validate('/name').value() == ['prefix part must be non-empty']",
    "!format.byte().validate('aGk=').hasValue() && format.date().validate('x').hasValue()",
    "!format.uri().validate('https://a').hasValue() && format.uri().validate('a').hasValue()",
    "format.labelValue() == format.named('labelValue').value()",
]  # fmt: skip


@pytest.mark.parametrize("expression", TRUE)
def test_a_function_of_kubernetes(expression: str) -> None:
    assert compile_any(expression).evaluate({}) is True


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("'abc'.charAt(4)", "index out of range: 4"),
        ("'abc'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
        ("[].max()", "max called on empty list"),
        ("[1].slice(0, 2)", "list is length 1"),
        ("[dyn(1), dyn('a')].sort()", "list elements must have the same type"),
        ("quantity('x')", "quantities must match the regular expression"),
        ("quantity('0.5').asInteger()", "cannot convert value to integer"),
        ("ip('x')", "unable to parse IP"),
        ("ip('::ffff:1.2.3.4')", "IPv4-mapped IPv6 address"),
        ("url('x')", "invalid URI for request"),
        ("semver('1')", "invalid semantic version"),
        ("'%d'.format(['a'])", "decimal clause can only be used on integers"),
        ("'%d'.format([])", "index 0 out of range"),
        ("'%q'.format([1])", "unrecognized formatting clause"),
        ("optional.none().value()", "optional.none() dereference"),
        ("1 / 0", "division by zero"),
        ("{'a': 1}.b", "no such key: b"),
        ("[1][5]", "index out of bounds: 5"),
        ("dyn(1).size()", "no such overload"),
    ],
)
def test_failed_function_reports_reason(expression: str, message: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        compile_any(expression).evaluate({})
    assert message in str(caught.value)


def test_functions_that_kubernetes_does_not_have_are_not_here() -> None:
    names = {key.name for key in FUNCTIONS}
    assert not {name for name in names if name.startswith(("math.", "base64.", "cel."))}
    # A string is reversed in a later version of the strings library than Kubernetes has.
    reverse = FUNCTIONS[FunctionKey("reverse", True)]
    assert [str(each.parameters[0]) for each in reverse] == ["list(A)"]
